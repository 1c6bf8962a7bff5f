-- Whose project an allocation is of: its admins may read its output. Those that are older have none.
ALTER TABLE allocations ADD COLUMN project text COLLATE "C" NOT NULL DEFAULT '';
