"""Tools of assistants: operations by the names that models call, over stdio and HTTP."""
