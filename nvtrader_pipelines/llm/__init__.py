"""Client of OpenAI-compatible endpoints: prompts in, documents out."""
