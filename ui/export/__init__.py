"""Files for people, and rows for doors without pictures: `page` makes self-contained HTML pages of episodes, pairs and
analyses, `formats` what an export can be written as, `rows` tables of what an answer draws."""
