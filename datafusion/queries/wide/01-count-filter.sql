-- One small column, nearly all of its rows skipped.
SELECT count(*) FROM hits WHERE adv_engine_id <> 0;
