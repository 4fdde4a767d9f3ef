-- A value that is in few rows.
SELECT count(*), min(event_time), max(event_time) FROM hits WHERE client_ip = 1234567;
