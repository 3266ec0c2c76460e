"""Google's protocols, as the simulated provider speaks them: at Google AI Studio and on Vertex AI.

The room `protocols` lists them; they import the simulated model and the wire, as all protocols do.
"""
