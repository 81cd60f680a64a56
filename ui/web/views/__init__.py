"""The pages of the web app, one module each."""
