"""Run the migrations on the connection that `storage.rows.engine` hands over, inside its transaction."""

from alembic import context

from storage.rows.schema import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True
)
context.run_migrations()
