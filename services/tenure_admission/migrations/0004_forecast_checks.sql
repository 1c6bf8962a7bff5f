-- What leaders found to stand in a waiting lease's way: since when, and until when, by reason.
ALTER TABLE forecasts ADD COLUMN checks jsonb NOT NULL DEFAULT '{}';
