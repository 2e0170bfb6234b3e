-- Each restore of lost data has an id, by which the data that it has made is recognised. Those that
-- are under way have made none.
update services set recovery = jsonb_build_object('id', id, 'at', null) || recovery
where recovery is not null;
