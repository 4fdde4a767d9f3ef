-- All columns of few rows.
SELECT * FROM hits WHERE is_download = 1 AND os = 60 AND user_agent = 50
ORDER BY watch_id LIMIT 10;
