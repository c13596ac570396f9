"""What a device can do: facts as data, one file a vendor, and the signals that tell the vendors apart.

A vendor's file holds FACTS, a facts.Facts with a source for each value, and recognise(signals), which returns the
signal that matched or None. A new vendor is such a file and a row in detect.VENDORS.
"""
