-- KPIs of a day, the typical week, forecasts and their models: computed once a day.

CREATE TABLE kpi_day (
    hive_id bigint NOT NULL REFERENCES hive ON DELETE CASCADE,
    day date NOT NULL,
    visits integer NOT NULL CHECK (visits >= 0),
    mean_occupancy double precision,
    mean_percent real,
    peak integer,
    peak_hour smallint CHECK (peak_hour BETWEEN 0 AND 23),
    coverage real CHECK (coverage BETWEEN 0 AND 1),
    PRIMARY KEY (hive_id, day)
);
COMMENT ON TABLE kpi_day IS 'A hive''s local day in figures.';
COMMENT ON COLUMN kpi_day.mean_occupancy IS 'Weighted by time, over the opening hours.';
COMMENT ON COLUMN kpi_day.coverage IS
    'The share of its opening hours in which the hive was heard of.';

CREATE TABLE typical_week (
    hive_id bigint NOT NULL REFERENCES hive ON DELETE CASCADE,
    weekday smallint NOT NULL CHECK (weekday BETWEEN 0 AND 6),
    hour smallint NOT NULL CHECK (hour BETWEEN 0 AND 23),
    entries double precision NOT NULL,
    occupancy double precision NOT NULL,
    weeks smallint NOT NULL CHECK (weeks > 0),
    made_at timestamptz NOT NULL,
    PRIMARY KEY (hive_id, weekday, hour)
);
COMMENT ON TABLE typical_week IS
    'What is usual, by local hour; Monday is 0. Medians of the last weeks'' hours.';
COMMENT ON COLUMN typical_week.occupancy IS 'The mean over the hour.';
COMMENT ON COLUMN typical_week.made_at IS 'The end of the last day that is in it.';
COMMENT ON COLUMN typical_week.weeks IS 'How many weeks it was made from.';

CREATE TABLE forecast_model (
    model text PRIMARY KEY,
    made_at timestamptz NOT NULL,
    accepted boolean NOT NULL,
    wape double precision,
    baseline_wape double precision,
    share_better double precision CHECK (share_better BETWEEN 0 AND 1),
    figures jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX forecast_model_accepted ON forecast_model (made_at DESC) WHERE accepted;
COMMENT ON TABLE forecast_model IS 'Models, and what the backtest said of them.';
COMMENT ON COLUMN forecast_model.share_better IS
    'The share of hives on which it was no worse than the baseline.';

CREATE TABLE forecast (
    hive_id bigint NOT NULL REFERENCES hive ON DELETE CASCADE,
    slot timestamptz NOT NULL,
    model text NOT NULL,
    made_at timestamptz NOT NULL,
    p50 double precision NOT NULL CHECK (p50 >= 0),
    p90 double precision NOT NULL CHECK (p90 >= p50),
    PRIMARY KEY (hive_id, slot, model, made_at)
);
COMMENT ON TABLE forecast IS
    'Traffic expected in the hour from slot on. Old ones are kept, to be scored.';

CREATE TABLE forecast_peak (
    hive_id bigint NOT NULL REFERENCES hive ON DELETE CASCADE,
    day date NOT NULL,
    model text NOT NULL,
    made_at timestamptz NOT NULL,
    starts_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL CHECK (ends_at > starts_at),
    PRIMARY KEY (hive_id, day, model, made_at)
);
COMMENT ON TABLE forecast_peak IS 'When a local day is expected to be busiest.';
