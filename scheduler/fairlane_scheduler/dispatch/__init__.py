"""Asks lanes for permits in fair order and publishes the granted attempts.

Intake, feed and the service use it; it imports `state`.
"""
