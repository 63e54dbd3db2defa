() => {
    const met = [];
    for (const svg of document.querySelectorAll('figure svg')) {
        const upright = [...svg.querySelectorAll('text')].filter(t => !t.hasAttribute('transform'));
        const all = upright.filter(t => t.textContent);
        const boxes = all.map(t => [t.textContent, t.getBoundingClientRect()]);
        for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
            const [a, x] = boxes[i], [b, y] = boxes[j];
            const wide = Math.min(x.right, y.right) - Math.max(x.left, y.left);
            const high = Math.min(x.bottom, y.bottom) - Math.max(x.top, y.top);
            if (wide > 2 && high > 6) met.push(`${a} / ${b}`);
        }
    }
    return met;
}
