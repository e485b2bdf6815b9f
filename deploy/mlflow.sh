#!/bin/bash
# MLflow's server with users (docs/how-to/postgresql.md): its settings are a file, which is made here of the environment, so
# that no secret lies in a repository or an image.
set -euo pipefail
umask 077
host=${PGHOST:-postgresql} port=${PGPORT:-5432}
export MLFLOW_AUTH_CONFIG_PATH=${HOME:?}/users.ini
export MLFLOW_BACKEND_STORE_URI=postgresql://mlflow:${MLFLOW_DB_PASSWORD:?}@$host:$port/mlflow
# A % is %% there. Nobody has a right that was not given: the admin makes users, and says who may do what.
python - >"$MLFLOW_AUTH_CONFIG_PATH" <<PY
import os
name, password = (os.environ[key].replace("%", "%%") for key in ("MLFLOW_ADMIN_USERNAME", "MLFLOW_ADMIN_PASSWORD"))
print(f"""[mlflow]
default_permission = NO_PERMISSIONS
database_uri = postgresql://mlflow:{os.environ['MLFLOW_DB_PASSWORD']}@$host:$port/mlflow_users
admin_username = {name}
admin_password = {password}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth""")
PY
artifacts=${MLFLOW_ARTIFACTS:-/srv/trainworthy/mlflow}
# Also before the first file comes: a backup wants to find it.
mkdir -p "$artifacts"
# The names by which it may be asked, else any page that a browser has open could ask it by a name of its own: the service's
# for runs, this machine's for people, and that of a proxy before it.
hosts=mlflow:5000,127.0.0.1:5000,localhost:5000${MLFLOW_SERVER_HOSTS:+,$MLFLOW_SERVER_HOSTS}
# Without its workers for the scoring of language models, which nobody asks for.
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false
# Each request hashes a password: one process would keep everybody waiting while a model is registered.
exec mlflow server --app-name basic-auth --host "${MLFLOW_HOST:-0.0.0.0}" --port "${MLFLOW_PORT:-5000}" --workers 4 \
  --allowed-hosts "$hosts" --artifacts-destination "$artifacts"
