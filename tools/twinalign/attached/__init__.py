"""Records a trainer of the user's own from inside its process; needs numpy and the framework alone.

Nothing here changes what the trainer computes, except where `weights`, `feed` or `repeat` asks for it. An error of the
recording ends the recording with one line, never the training.
"""
