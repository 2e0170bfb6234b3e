-- Whether the size of a service is a bound of its CPU too; null: as its region has it.

alter table services add column cpu_bound boolean;
