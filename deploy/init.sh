#!/bin/bash
# Roles, databases, Dagster's tables: what compose.yaml's services need, once. Again changes nothing. With the word `empty` no
# tables are made: a backup is restored to databases without any.
set -euo pipefail
for name in TRAINWORTHY_DB_PASSWORD MLFLOW_DB_PASSWORD; do
  # They stand in addresses, where other characters would have to be written as %…
  [[ ${!name} =~ ^[A-Za-z0-9]{16,}$ ]] || {
    echo "$name has to be 16 or more letters and digits. Fix: openssl rand -hex 24" >&2
    exit 1
  }
done
# Passwords by \getenv: a command line is seen by everybody. A role for each service, and a database of its own for MLflow:
# it and Dagster both keep their schema's revision in a table alembic_version. Its users lie in a third.
psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --dbname=postgres <<'SQL'
\getenv trainworthy TRAINWORTHY_DB_PASSWORD
\getenv mlflow MLFLOW_DB_PASSWORD
SELECT 'CREATE ROLE trainworthy' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'trainworthy') \gexec
SELECT 'CREATE ROLE mlflow' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'mlflow') \gexec
ALTER ROLE trainworthy LOGIN PASSWORD :'trainworthy';
ALTER ROLE mlflow LOGIN PASSWORD :'mlflow';
SELECT format('CREATE DATABASE %I OWNER %I', name, owner) FROM
  (VALUES ('trainworthy', 'trainworthy'), ('mlflow', 'mlflow'), ('mlflow_users', 'mlflow')) AS wanted (name, owner)
  WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = name) \gexec
REVOKE ALL ON DATABASE trainworthy FROM PUBLIC;
REVOKE ALL ON DATABASE mlflow FROM PUBLIC;
REVOKE ALL ON DATABASE mlflow_users FROM PUBLIC;
SQL
# By one process, before any service is up: two that make them at once can leave two revisions for ever.
[[ ${1:-} == empty ]] || dagster instance migrate
