-- Live figures: the last report of each sensor, occupancy of hives, and rollups.
--
-- Everything here is written by the pipeline, one transaction per batch. Entries and exits are facts
-- that add up; occupancies and peaks follow from them, from nightly resets and from manual counts,
-- so that a replay gives the same values. Rows that every batch rewrites have room in each page, so
-- that an update stays there and touches no index.

CREATE TABLE sensor_state (
    sensor_id bigint PRIMARY KEY REFERENCES sensor ON DELETE CASCADE,
    total_in bigint,
    total_out bigint,
    device_time timestamp,
    received_at timestamptz NOT NULL,
    at timestamptz NOT NULL,
    rate_p99 double precision NOT NULL DEFAULT 0 CHECK (rate_p99 >= 0),
    sum_in bigint NOT NULL DEFAULT 0,
    sum_out bigint NOT NULL DEFAULT 0,
    counter integer,
    flags integer NOT NULL DEFAULT 0,
    memory bytea,
    batch bigint NOT NULL
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);
COMMENT ON TABLE sensor_state IS 'What the next report of a sensor is compared with.';
COMMENT ON COLUMN sensor_state.total_in IS 'The baseline; null for sensors without totals.';
COMMENT ON COLUMN sensor_state.device_time IS 'Its own clock at the baseline.';
COMMENT ON COLUMN sensor_state.rate_p99 IS '99th percentile of its events per hour.';
COMMENT ON COLUMN sensor_state.sum_in IS 'All entries ever accepted from it.';
COMMENT ON COLUMN sensor_state.counter IS 'The last message counter, if it has one.';
COMMENT ON COLUMN sensor_state.memory IS 'What the rules remember beside the totals.';
COMMENT ON COLUMN sensor_state.batch IS 'The batch that wrote this.';

CREATE TABLE sensor_status (
    sensor_id bigint PRIMARY KEY REFERENCES sensor ON DELETE CASCADE,
    received_at timestamptz NOT NULL,
    started_at timestamptz,
    battery_mv integer,
    sensor_state integer,
    discarded_events integer,
    signal_dbm integer,
    firmware text,
    configuration_id bigint,
    raw bytea
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);
COMMENT ON TABLE sensor_status IS 'The last status message of each sensor.';

CREATE TABLE hive_status (
    hive_id bigint PRIMARY KEY REFERENCES hive ON DELETE CASCADE,
    occupancy integer NOT NULL CHECK (occupancy >= 0),
    raw_occupancy integer NOT NULL,
    percent real CHECK (percent >= 0),
    level text CHECK (level IN ('quiet', 'moderate', 'busy', 'full')),
    trend text NOT NULL DEFAULT 'steady' CHECK (trend IN ('falling', 'steady', 'rising')),
    quality text NOT NULL DEFAULT 'good' CHECK (quality IN ('good', 'partial', 'stale')),
    as_of timestamptz NOT NULL,
    version bigint NOT NULL
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);
COMMENT ON TABLE hive_status IS 'How full a hive is now.';
COMMENT ON COLUMN hive_status.raw_occupancy IS 'Before it was kept from going below zero.';
COMMENT ON COLUMN hive_status.percent IS 'Of its capacity; null, as is level, without one.';
COMMENT ON COLUMN hive_status.quality IS
    'good when all its doors report, partial when some are silent, stale when all are.';
COMMENT ON COLUMN hive_status.version IS 'Grows with every change.';

CREATE TABLE manual_count (
    hive_id bigint NOT NULL REFERENCES hive ON DELETE CASCADE,
    at timestamptz NOT NULL,
    counted integer NOT NULL CHECK (counted >= 0),
    by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (hive_id, at)
);
COMMENT ON TABLE manual_count IS 'Somebody counted heads: from then on this is the truth.';

CREATE TABLE nightly_reset (
    hive_id bigint NOT NULL REFERENCES hive ON DELETE CASCADE,
    day date NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (hive_id, day)
);
COMMENT ON TABLE nightly_reset IS 'When a hive was taken to be empty, by its local day.';

CREATE TABLE hive_offset (
    hive_id bigint NOT NULL REFERENCES hive ON DELETE CASCADE,
    at timestamptz NOT NULL,
    correction bigint NOT NULL,
    cause text NOT NULL CHECK (cause IN ('nightly', 'manual')),
    PRIMARY KEY (hive_id, at)
);
COMMENT ON TABLE hive_offset IS
    'What is added to entries less exits from then on, so that resets and counts hold.';

CREATE TABLE occupancy_5min (
    hive_id bigint NOT NULL,
    slot timestamptz NOT NULL
        CHECK (date_bin('5 minutes', slot, '2000-01-01 00:00+00') = slot),
    entries integer NOT NULL DEFAULT 0,
    exits integer NOT NULL DEFAULT 0,
    occupancy_end integer,
    peak integer,
    PRIMARY KEY (hive_id, slot)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX occupancy_5min_slot ON occupancy_5min USING brin (slot);
COMMENT ON TABLE occupancy_5min IS 'Traffic and occupancy of five minutes, from slot on.';

CREATE TABLE occupancy_hour (
    hive_id bigint NOT NULL,
    slot timestamptz NOT NULL,
    entries integer NOT NULL DEFAULT 0,
    exits integer NOT NULL DEFAULT 0,
    occupancy_end integer,
    peak integer,
    mean double precision,
    PRIMARY KEY (hive_id, slot)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX occupancy_hour_slot ON occupancy_hour USING brin (slot);
COMMENT ON TABLE occupancy_hour IS 'The same by the hour of the hive''s own clock.';
COMMENT ON COLUMN occupancy_hour.mean IS 'Occupancy weighted by time.';

CREATE TABLE occupancy_day (
    hive_id bigint NOT NULL REFERENCES hive ON DELETE CASCADE,
    day date NOT NULL,
    entries integer NOT NULL DEFAULT 0,
    exits integer NOT NULL DEFAULT 0,
    occupancy_end integer,
    peak integer,
    peak_at timestamptz,
    mean double precision,
    PRIMARY KEY (hive_id, day)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);
COMMENT ON TABLE occupancy_day IS 'The same by the hive''s local day, 23 to 25 hours long.';

-- The slots and hours have no foreign key to their hive: they are written by the thousand, for hives
-- that were just read, beside a row of `hive_status` that is checked. When a hive is deleted, a trigger
-- deletes them. Triggers of one moment run in the order of their names, and those of foreign keys begin
-- with RI_: it runs after them, so a batch that is being written has ended.
CREATE FUNCTION take_occupancy_along() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            DELETE FROM occupancy_5min WHERE hive_id = OLD.id;
DELETE FROM occupancy_hour WHERE hive_id = OLD.id;
            RETURN NULL;
        END $$;
        CREATE TRIGGER take_occupancy_along AFTER DELETE ON hive
            FOR EACH ROW EXECUTE FUNCTION take_occupancy_along();
