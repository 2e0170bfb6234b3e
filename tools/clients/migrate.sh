#!/usr/bin/env bash
# Lets tools that migrate databases make a table, change it and find nothing more to do, each with
# its package from the registry of its language: tools/clients/migrate.sh URL [TOOL…], where URL is
# what `howdah url SERVICE` prints, with the password of the service in PGPASSWORD. The languages
# must be installed. Each tool has a database of its own. Prints one line for each tool.
set -uo pipefail
base=${1:?usage: tools/clients/migrate.sh URL [TOOL…]}
shift
[ $# -gt 0 ] || set -- drizzle-kit prisma django alembic activerecord flyway liquibase dbmate
: "${PGPASSWORD:?set PGPASSWORD to the password of the service}"
scratch=$(mktemp -d "${TMPDIR:-/tmp}/howdah-migrate.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# The parts of the URL: user, host, port, parameters.
[[ $base =~ ^postgres(ql)?://([^@]+)@([^:/]+):([0-9]+)/[^?]+(\?(.*))?$ ]] || {
  echo "not a URL of howdah url: $base" >&2
  exit 2
}
user=${BASH_REMATCH[2]} host=${BASH_REMATCH[3]} port=${BASH_REMATCH[4]} parameters=${BASH_REMATCH[6]}
ca=$(sed -n 's/.*sslrootcert=\([^&]*\).*/\1/p' <<<"$parameters")
export PGUSER=$user PGHOST=$host PGPORT=$port PGSSLMODE=verify-full PGSSLROOTCERT=$ca
url() { printf 'postgres://%s:%s@%s:%s/%s?%s' "$user" "$PGPASSWORD" "$host" "$port" "$PGDATABASE" "$parameters"; }
query() { psql -XAtc "$1"; }

# The columns of the table that a tool made; each tool makes the same two.
columns() { # TABLE
  query "select string_agg(attname, ' ' order by attname) from pg_attribute where attrelid = '$1'::regclass and attnum > 0 and not attisdropped"
}

maven() { # CLASSPATH-FILE COORDINATE… ; the jars with what they need
  local out=$1
  shift
  {
    echo '<project><modelVersion>4.0.0</modelVersion><groupId>t</groupId><artifactId>t</artifactId><version>1</version><dependencies>'
    for coordinate in "$@"; do
      echo "<dependency><groupId>${coordinate%%:*}</groupId><artifactId>${coordinate#*:}</artifactId><version>LATEST</version></dependency>"
    done
    echo '</dependencies></project>'
  } >pom.xml
  mvn -q dependency:build-classpath -Dmdep.outputFile="$out"
}

run() {
  case $1 in
    drizzle-kit)
      npm install --silent --no-audit --no-fund drizzle-kit drizzle-orm pg || return
      write_schema() {
        printf '%s\n' "import { pgTable, serial, text } from 'drizzle-orm/pg-core';" \
          "export const things = pgTable('things', { id: serial().primaryKey(), $1 });" >schema.ts
      }
      printf '%s\n' "export default { dialect: 'postgresql', schema: './schema.ts', dbCredentials: { url: process.env.URL } };" >drizzle.config.ts
      export URL NODE_EXTRA_CA_CERTS=$ca
      URL=$(url)
      write_schema 'name: text()' && npx drizzle-kit push --force &&
        write_schema 'name: text(), note: text()' && npx drizzle-kit push --force &&
        npx drizzle-kit push --force | tee again && grep -q 'No changes' again &&
        [ "$(columns things)" = 'id name note' ] && npm ls drizzle-kit | grep drizzle-kit@
      ;;
    prisma)
      # Without its programs, which come from a server of Prisma's own: `migrate diff` writes the SQL,
      # and the adapter of the client runs it, in a shadow database first.
      npm install --silent --no-audit --no-fund --ignore-scripts {prisma,@prisma/client,@prisma/adapter-pg}@6 || return
      touch none
      export URL=unused PRISMA_QUERY_ENGINE_LIBRARY=$PWD/none PRISMA_SCHEMA_ENGINE_BINARY=$PWD/none
      prisma_schema() { # FILE LINE…
        printf '%s\n' 'datasource db {' 'provider = "postgresql"' 'url = env("URL")' '}' \
          'generator client {' 'provider = "prisma-client-js"' 'engineType = "client"' 'output = "./made"' '}' \
          'model things {' 'id Int @id @default(autoincrement())' 'name String?' "${@:2}" '}' >"$1"
      }
      prisma_schema first.prisma && prisma_schema schema.prisma 'note String?'
      cat >adapter.mjs <<'JS'
import { readFileSync } from 'node:fs';
import { PrismaPg } from '@prisma/adapter-pg';
const env = process.env;
// Prisma drops the shadow database before it closes its pool there: idle connections end first.
const idleTimeoutMillis = 1;
export const adapter = new PrismaPg({
  host: env.PGHOST, port: Number(env.PGPORT), database: env.PGDATABASE,
  user: env.PGUSER, password: env.PGPASSWORD,
  ssl: { ca: readFileSync(env.PGSSLROOTCERT) }, idleTimeoutMillis,
});
JS
      cat >prisma.config.mjs <<'JS'
import { adapter } from './adapter.mjs';
const experimental = { adapter: true };
export default { schema: 'schema.prisma', engine: 'js', experimental, adapter: async () => adapter };
JS
      cat >run.mjs <<'JS'
import { deepStrictEqual } from 'node:assert';
import { readFileSync } from 'node:fs';
import { adapter } from './adapter.mjs';
import { PrismaClient } from './made/index.js';
for (const open of [() => adapter.connectToShadowDb(), () => adapter.connect()]) {
  const connection = await open();
  for (const file of ['first.sql', 'second.sql']) await connection.executeScript(readFileSync(file, 'utf8'));
  await connection.dispose();
}
const prisma = new PrismaClient({ adapter });
await prisma.$transaction((tx) => tx.things.create({ data: { name: 'one' } }));
deepStrictEqual(await prisma.things.findMany(), [{ id: 1, name: 'one', note: null }]);
const left = await prisma.$queryRaw`
  select datname::text from pg_database where datname like 'prisma_migrate_shadow%'`;
deepStrictEqual(left, []);
await prisma.$disconnect();
JS
      npx prisma generate && npx prisma migrate diff --from-empty --to-schema-datamodel first.prisma --script >first.sql &&
        npx prisma migrate diff --from-schema-datamodel first.prisma --to-schema-datamodel schema.prisma --script >second.sql &&
        node run.mjs && [ "$(columns things)" = 'id name note' ] && npm ls --depth=0 | grep -oE '(prisma|@prisma/adapter-pg)@.*'
      ;;
    django)
      python3 -m venv venv && venv/bin/pip install -q django 'psycopg[binary]' || return
      venv/bin/django-admin startproject project . && venv/bin/python manage.py startapp shop || return
      cat >>project/settings.py <<PYTHON
import os
INSTALLED_APPS += ['shop']
DATABASES = {'default': {'ENGINE': 'django.db.backends.postgresql', 'NAME': os.environ['PGDATABASE'],
  'USER': os.environ['PGUSER'], 'HOST': os.environ['PGHOST'], 'PORT': os.environ['PGPORT'],
  'PASSWORD': os.environ['PGPASSWORD']}}
PYTHON
      model() { printf '%s\n' 'from django.db import models' 'class Things(models.Model):' '    name = models.TextField(null=True)' "$@" >shop/models.py; }
      model && venv/bin/python manage.py makemigrations && venv/bin/python manage.py migrate &&
        model '    note = models.TextField(null=True)' && venv/bin/python manage.py makemigrations &&
        venv/bin/python manage.py migrate && venv/bin/python manage.py migrate --check &&
        [ "$(columns shop_things)" = 'id name note' ] &&
        venv/bin/python manage.py test && # makes a database, and drops it
        venv/bin/pip list 2>/dev/null | grep -i '^django '
      ;;
    alembic)
      python3 -m venv venv && venv/bin/pip install -q alembic sqlalchemy 'psycopg[binary]' && venv/bin/alembic init made || return
      cat >model.py <<PYTHON
import sqlalchemy as sa
metadata = sa.MetaData()
things = sa.Table('things', metadata, sa.Column('id', sa.Integer, primary_key=True), sa.Column('name', sa.Text), sa.Column('note', sa.Text))
PYTHON
      sed -i 's/^target_metadata = None/import sys; sys.path.insert(0, "."); import model; target_metadata = model.metadata/' made/env.py
      sed -i 's|^sqlalchemy.url = .*|sqlalchemy.url = postgresql+psycopg://|' alembic.ini
      venv/bin/alembic revision --autogenerate -m first && venv/bin/alembic upgrade head &&
        venv/bin/alembic check && [ "$(columns things)" = 'id name note' ] &&
        venv/bin/pip list 2>/dev/null | grep -iE '^(alembic|sqlalchemy) '
      ;;
    activerecord)
      cat >migrate.rb <<'RUBY'
require 'active_record'
ActiveRecord::Base.establish_connection(adapter: 'postgresql', database: ENV['PGDATABASE'])
class First < ActiveRecord::Migration[6.1]
  def change
    create_table(:things) { |t| t.text :name }
    add_column :things, :note, :text
    add_index :things, :name, algorithm: nil
  end
end
First.migrate(:up)
First.migrate(:down)
First.migrate(:up)
puts "activerecord #{ActiveRecord.version}"
RUBY
      ruby migrate.rb && [ "$(columns things)" = 'id name note' ]
      ;;
    flyway)
      maven cp org.flywaydb:flyway-core org.flywaydb:flyway-database-postgresql org.postgresql:postgresql || return
      mkdir sql && echo 'create table things (id serial primary key, name text);' >sql/V1__first.sql &&
        echo 'alter table things add note text;' >sql/V2__second.sql
      cat >Run.java <<'JAVA'
import org.flywaydb.core.Flyway;
public class Run {
  public static void main(String[] args) {
    var flyway = Flyway.configure().dataSource(args[0], args[1], args[2]).locations("filesystem:sql").load();
    flyway.migrate();
    flyway.validate();
    if (flyway.migrate().migrationsExecuted != 0) throw new IllegalStateException("not done");
  }
}
JAVA
      java -cp "$(cat cp)" Run.java "jdbc:postgresql://$host:$port/$PGDATABASE?sslmode=verify-full&sslrootcert=$ca" "$user" "$PGPASSWORD" &&
        [ "$(columns things)" = 'id name note' ] && tr ':' '\n' <cp | grep -o 'flyway-core-[0-9.]*[0-9]'
      ;;
    liquibase)
      maven cp org.liquibase:liquibase-core org.postgresql:postgresql info.picocli:picocli || return
      cat >log.sql <<'SQL'
--liquibase formatted sql
--changeset a:1
create table things (id serial primary key, name text);
--changeset a:2
alter table things add note text;
--rollback alter table things drop note;
SQL
      liquibase() {
        java -cp "$(cat cp):." liquibase.integration.commandline.LiquibaseCommandLine --changelog-file=log.sql --username="$user" --password="$PGPASSWORD" \
          --url="jdbc:postgresql://$host:$port/$PGDATABASE?sslmode=verify-full&sslrootcert=$ca" "$@"
      }
      liquibase update && liquibase rollback-count --count=1 && liquibase update && liquibase status && [ "$(columns things)" = 'id name note' ] &&
        tr ':' '\n' <cp | grep -o 'liquibase-core-[0-9.]*[0-9]'
      ;;
    dbmate)
      mkdir -p db/migrations && printf '%s\n' '-- migrate:up' 'create table things (id serial primary key, name text);' 'alter table things add note text;' '-- migrate:down' 'drop table things;' >db/migrations/20260101000000_first.sql
      npm install --silent --no-audit --no-fund dbmate || return
      dbmate() { npx dbmate --url "$(url)" --no-dump-schema "$@"; }
      dbmate up && dbmate rollback && dbmate up && [ "$(columns things)" = 'id name note' ] && dbmate --version
      ;;
    *) echo "no such tool: $1" >&2 && return 2 ;;
  esac
}

failed=0
for tool in "$@"; do
  mkdir "$scratch/$tool"
  export PGDATABASE=tsdb
  database=migrate_${tool//-/_}
  query "create database $database" >/dev/null || exit 1
  export PGDATABASE=$database
  if (cd "$scratch/$tool" && run "$tool") >"$scratch/out" 2>&1; then
    printf 'ok      %-12s %s\n' "$tool" "$(tail -2 "$scratch/out" | tr -s ' \n' ' ')"
  else
    failed=1
    printf 'FAILED  %-12s\n' "$tool"
    sed 's/^/        /' "$scratch/out" | tail -8
  fi
  PGDATABASE=tsdb query "drop database $database with (force)" >/dev/null
done
exit "$failed"
