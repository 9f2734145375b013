"""The business dashboard: what a business's hives do, have done and are expected to do.

Pages ask the application's services, as the person who looks; what a person may not see is not
there for them. Nothing is computed here that is not a matter of drawing.
"""
