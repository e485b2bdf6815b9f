"""What `trainworthy new` does: read a file, find out what it holds, and write a use case that passes its preflight.

request.py what is asked; reading.py how a CSV file is written; source.py the file and the types of its columns;
roles.py what each column means, target.py the one that is predicted, by what held.py finds in it, or why it is none
(unfit.py); windows.py the split by time and the stages, shares.py the split of rows without times; stage_text.py
dvc.yaml; create.py the main path: all problems first, then everything or nothing. found.py what all of this gives,
table_profile.py how a table comes to it and what a person should know. Of a folder of files: folder.py what its names
say, contents.py what the files hold, folder_files.py the network, folder_profile.py the rows and the label.
"""
