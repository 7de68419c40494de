-- The jobs of a task queue whose turn is next wait for another reason than those behind them: how many they are, and the id
-- that is greater than theirs.
ALTER TABLE task_queue_reason ADD COLUMN next_reason TEXT;
ALTER TABLE task_queue_reason ADD COLUMN next_jobs INTEGER NOT NULL DEFAULT 0;
ALTER TABLE task_queue_reason ADD COLUMN next_before INTEGER NOT NULL DEFAULT 0;
