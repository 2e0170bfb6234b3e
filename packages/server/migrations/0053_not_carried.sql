-- What an operation did not carry over, in words for users; null: nothing, or it makes no copy.

alter table operations add column not_carried text[];
