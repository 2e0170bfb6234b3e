-- Columns get the names that the documentation uses (docs/glossary.md).

alter table services rename column admitted to allowed_networks;
