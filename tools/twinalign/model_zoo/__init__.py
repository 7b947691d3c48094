"""`twinalign zoo`: aligns every classification architecture that torchvision and paddle.vision share."""
