"""Fairlane's own protocols, one file each: entry points of the group `fairlane.protocols`.

`providers` loads them; they import `dialect` and its siblings.
"""
