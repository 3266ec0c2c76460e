"""The web pages: handlers behind Flower's login, their data, templates and static files.
`fairlane.flower.installing` adds them to Flower; they import the rooms `tasks` and `readings`.
"""
