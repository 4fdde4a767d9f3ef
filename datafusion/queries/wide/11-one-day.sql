-- A day of the month: most row groups and pages are skipped.
SELECT counter_id, count(*) AS views FROM hits
WHERE event_date = DATE '2026-01-15' AND is_refresh = 0
GROUP BY counter_id ORDER BY views DESC, counter_id LIMIT 10;
