"""Classification of each record that differs: lost, duplicated, corrupted, reordered, foreign or none of these."""
