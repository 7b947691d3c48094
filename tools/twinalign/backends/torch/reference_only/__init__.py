"""What the reference alone is asked for: its calls seen and rewritten, its training loop and its ranks changed.

A cause is proven by making the reference wrong in the same way as the port. So all of this is torch's alone.
"""
