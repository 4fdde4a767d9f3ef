SELECT search_phrase, min(url), min(title), count(*) AS views, count(DISTINCT user_id) FROM hits
WHERE title LIKE '%engine%' AND search_phrase <> '' GROUP BY search_phrase
ORDER BY views DESC, search_phrase LIMIT 10;
