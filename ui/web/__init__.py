"""The web app: one door over what `ui.runs` plays and `storage` keeps."""
