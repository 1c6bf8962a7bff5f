-- Whose lease an allocation is of: its owner may read its output. Those that are older have none and
-- stay closed to users.
ALTER TABLE allocations ADD COLUMN owner text COLLATE "C" NOT NULL DEFAULT '';
