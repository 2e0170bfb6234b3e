-- A service or VPC shows the alias by which its region was asked for; null: the code.
alter table services add column region_alias text;
alter table vpcs add column region_alias text;
