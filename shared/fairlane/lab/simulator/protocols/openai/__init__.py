"""OpenAI's protocols and those that copy them, as the simulated provider speaks them: Azure's and Mistral's.

The room `protocols` lists them; they import the simulated model and the wire, as all protocols do.
"""
