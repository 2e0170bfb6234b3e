-- Documents of services say which key made them: fork_only keys change only forks that they made, and clients have to know which these are.
update services set doc = left(doc, -1) || ',"created_by":' || to_json(created_by)::text || '}' where created_by is not null and doc <> '';
