-- The parts of its service that the result of an operation does not have, in words for users; null: none.

alter table operations add column not_carried text[];
