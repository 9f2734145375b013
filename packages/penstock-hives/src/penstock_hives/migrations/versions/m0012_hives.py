"""The schema of hives. Each part is a file of SQL in `m0012/`."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0012"
down_revision = None

_PARTS = (
    *("catalogue", "occupancy", "forecast", "people", "plans", "places", "sensors", "messages"),
    "insight",
)
_TABLES = (
    *("account", "address", "hive_type", "hive", "sensor_report_config", "sensor"),
    *("sensor_state", "sensor_status", "hive_status", "manual_count", "nightly_reset"),
    *("hive_offset", "occupancy_5min", "occupancy_hour", "occupancy_day"),
    *("kpi_day", "typical_week", "forecast_model", "forecast", "forecast_peak"),
    *("app_user", "credential", "refresh_token", "account_member", "api_key", "audit_log"),
    *("idempotency_key", "account_invitation", "sign_in_failure"),
    *("feature", "subscription_type", "subscription_type_feature", "subscription"),
    *("transaction", "payment_event", "user_hive", "hive_image", "hive_network"),
    *("deal", "deal_preference", "deal_event", "deal_told", "modem", "sensor_network_config"),
    *("sensor_report_schedule", "sensor_command", "user_message", "user_analytics"),
    *("user_notification_def", "notification_state", "push_endpoint", "notification"),
    *("notification_delivery", "custom_metric", "custom_metric_value", "insight"),
    *("hive_popularity", "preference_shift", "deal_recommendation"),
    *("hive_comparison", "deal_effect", "feedback_day"),
)
#: Those whose rows are changed by people, and say when.
_TOUCHED = (
    *("account", "address", "hive_type", "hive", "sensor_report_config", "sensor"),
    *("app_user", "credential", "account_member", "api_key", "feature", "subscription_type"),
    *("subscription", "user_hive", "hive_image", "hive_network", "deal", "deal_preference"),
    *("modem", "sensor_network_config", "sensor_report_schedule", "user_message"),
    *("user_notification_def", "push_endpoint", "custom_metric"),
)
_FUNCTIONS = (
    *("touched", "take_occupancy_along", "hive_open", "acknowledge_configuration"),
    *("user_analytics_month", "tell_change", "tell_definitions", "arm_again", "tell_delivery"),
)


def upgrade() -> None:
    folder = Path(__file__).with_name("m0012")
    for part in _PARTS:
        op.execute((folder / f"{part}.sql").read_text(encoding="utf-8"))
    for table in _TOUCHED:
        op.execute(f"""
            CREATE TRIGGER touched BEFORE UPDATE ON {table}
            FOR EACH ROW EXECUTE FUNCTION touched()
        """)


def downgrade() -> None:
    op.execute(f"DROP TABLE {', '.join(_TABLES)}")
    op.execute("DROP SEQUENCE sensor_configuration")
    op.execute(f"DROP FUNCTION {', '.join(_FUNCTIONS)}")
    op.execute("DROP DOMAIN time_zone")
