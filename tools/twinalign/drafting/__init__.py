"""`twinalign port`: from a torch model to a paddle port that is drafted, mended and proven."""
