"""From files to posts: described, walked, watched."""
