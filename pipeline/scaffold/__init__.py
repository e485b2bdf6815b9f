"""What `trainworthy new` does: read a file, find out what it holds, and write a use case that passes its preflight.

request.py what is asked; source.py the file and the types of its columns; roles.py what each column means; windows.py
split and stages; stage_text.py dvc.yaml; create.py the main path: all problems first, then everything or nothing.
"""
