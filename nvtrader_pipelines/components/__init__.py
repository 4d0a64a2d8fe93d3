"""What every configurable part is made of: frozen specs, their JSON Schemas, and explanations of bad documents."""
