"""The application: users, plans and payments, deals, messages, alerts, sensors' configurations.

Each part is a file of SQL beside this one, in `m0008/`, in PostgreSQL's own words.
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0008"
down_revision = "0006"

_PARTS = ("people", "plans", "places", "sensors", "messages", "insight")
_TABLES = (
    *("app_user", "credential", "refresh_token", "account_member", "api_key", "audit_log"),
    *("idempotency_key", "feature", "subscription_type", "subscription_type_feature"),
    *("subscription", "transaction", "payment_event", "user_hive", "hive_image", "hive_network"),
    *("deal", "deal_preference", "deal_event", "modem", "sensor_network_config"),
    *("sensor_report_schedule", "sensor_command", "user_message", "user_analytics"),
    *("user_notification_def", "notification_state", "push_endpoint", "notification"),
    *("notification_delivery", "custom_metric", "custom_metric_value", "insight"),
    *("hive_popularity", "preference_shift", "deal_recommendation"),
)
#: Those whose rows are changed by people, and say when.
_TOUCHED = (
    *("app_user", "credential", "account_member", "api_key", "feature", "subscription_type"),
    *("subscription", "user_hive", "hive_image", "hive_network", "deal", "deal_preference"),
    *("modem", "sensor_network_config", "sensor_report_schedule", "user_message"),
    *("user_notification_def", "push_endpoint", "custom_metric"),
)


def upgrade() -> None:
    folder = Path(__file__).with_suffix("").with_name("m0008")
    for part in _PARTS:
        op.execute((folder / f"{part}.sql").read_text(encoding="utf-8"))
    for table in _TOUCHED:
        op.execute(f"""
            CREATE TRIGGER touched BEFORE UPDATE ON {table}
            FOR EACH ROW EXECUTE FUNCTION touched()
        """)


def downgrade() -> None:
    op.execute("""
        DROP TRIGGER acknowledge_configuration ON sensor_status;
        ALTER TABLE sensor DROP COLUMN modem_id, DROP COLUMN network_config_id,
            DROP COLUMN provisioned_at;
    """)
    for table in reversed(_TABLES):
        op.execute(f"DROP TABLE {table}")
    op.execute("""
        DROP SEQUENCE sensor_configuration;
        DROP FUNCTION hive_open, acknowledge_configuration, user_analytics_month, tell_change;
    """)
