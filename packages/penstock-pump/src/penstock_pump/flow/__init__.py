"""Posts over a broker: subscriptions, publishers, and the consumer loop with its retries."""
