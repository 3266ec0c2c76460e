"""The pages as browsers get them: handlers behind Flower's login, their data, templates and static files.

`fairlane.flower.installing` puts them into Flower; they import the rooms `tasks` and `readings`.
"""
