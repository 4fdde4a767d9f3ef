SELECT date_trunc('minute', event_time) AS minute, count(*) AS views FROM hits
WHERE event_date BETWEEN DATE '2026-01-10' AND DATE '2026-01-12' AND is_mobile = 1
GROUP BY minute ORDER BY minute LIMIT 10 OFFSET 100;
