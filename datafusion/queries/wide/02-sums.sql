-- Three small columns.
SELECT sum(adv_engine_id), count(*), sum(resolution_width), max(send_timing) FROM hits;
