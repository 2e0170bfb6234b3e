module howdah/howdahtest

go 1.22
