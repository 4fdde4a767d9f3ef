-- A long text column.
SELECT count(*) FROM hits WHERE url LIKE '%winter travel%';
