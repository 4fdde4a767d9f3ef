-- Twelve of the 105 columns.
SELECT sum(detail_25), sum(detail_26), sum(detail_27), sum(detail_28), sum(detail_30),
    sum(detail_31), sum(detail_33), sum(detail_35), sum(detail_36), sum(detail_37),
    sum(detail_38), sum(detail_40) FROM hits;
